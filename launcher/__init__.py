"""One page of YAML into one CreateTrainingJob request, shown, run here, or sent."""
