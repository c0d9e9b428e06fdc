"""The conformance kit for check controllers. The kit plays the workload-controller's part."""
