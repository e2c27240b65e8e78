"""The files here run in an environment of their own: `make test-openmmlab`."""

collect_ignore_glob = ["*"]
