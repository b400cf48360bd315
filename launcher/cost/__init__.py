"""The cost of a job before and after it runs: always an estimate, with the source and date of its prices.

Offline, prices come from launcher/data/prices.json (`table`); `online` asks AWS. A missing price is reported as unknown,
since a wrong number is worse than none. Savings plans, credits, taxes and negotiated prices are not considered.
"""
