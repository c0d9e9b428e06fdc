"""The conformance kit for providers of capacity. It plays the provisioning check's part."""
