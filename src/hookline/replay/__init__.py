"""Replay: run steps of a run again, from a checkpoint or from the start, in a scratch folder.

preparation   what is to be repeated, and from where: a capsule, or steps
running       builds the run again, from its config or by its script
rerun         what a training does instead, while it is repeated
outcome       what came out, compared with what the run has recorded
triage        finds where NaN or Inf began, with the operations that `tracing` follows; `verdict` says it
verification  compares a training with its observers and without; `probing` looks around their calls
trail, bits   the bits of everything in every step
"""
