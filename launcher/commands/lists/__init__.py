"""The commands of `launch lst`, on `.lst` lists of images and labels."""
