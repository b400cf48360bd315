"""What a job costs, before it runs and after: always an estimate, with where its prices come from and of when they are.

Offline, prices come from launcher/data/prices.json (`table`); `online` asks AWS. A type that neither knows is said to be
unknown: a wrong number is worse than none. Savings plans, credits, taxes and agreed prices are nobody's business here.
"""

from launcher.cost.ended import JobCost, estimate_of_job
from launcher.cost.estimate import Cluster, Estimate, Instances, estimate
from launcher.cost.table import Price, instance_price, volume_price

__all__ = [
    "Cluster",
    "Estimate",
    "Instances",
    "JobCost",
    "Price",
    "estimate",
    "estimate_of_job",
    "instance_price",
    "volume_price",
]
