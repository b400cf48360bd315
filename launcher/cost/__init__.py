"""The cost of a job before and after it runs: always an estimate, with the source and date of its prices.

A missing price is reported as unknown, since a wrong number is worse than none. Savings plans, credits, taxes and negotiated
prices are not considered.
"""
