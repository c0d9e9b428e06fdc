"""What would follow if manifests were applied now: tried out on copies of the bucket.

The copies are decided upon by the very cores of the services, the scheduler's and the
workload-controller's, and nothing of it reaches the bus. Pure but for `__main__`, the process that
the scheduler starts for each question, so that no decision waits for an answer.
"""
