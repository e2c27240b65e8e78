"""Runs of several processes: real gloo, real torchrun, loopback only, with a time limit each."""
