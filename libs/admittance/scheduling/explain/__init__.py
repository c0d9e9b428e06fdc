"""Why a workload waits, what a decision was made from, and one decision made again."""
