"""Sweeps: many runs of one config with different values, chosen by Optuna. `hookline sweep` is their command.

grammar      `lr=1e-4..1e-1:log` on the command line  ->  a parameter
space        parameters: the values that they can have, and how Optuna and a config write them
probe        one batch of the validation, for the names of its metrics
preparation  everything that is checked before the first trial
samplers     which values the next trial has
studies      what a study records, and what must not change when it is continued
claims       which process runs which trial
trials       one trial: its command, its process, its outcome
joining      the other side: what the process of a trial does besides training
sweep        the loop: claim, start, wait, tell
results      the table, the best config
"""
