"""Pointrix's names and habits: a trainer that counts steps from 1, hooks from a YAML file, a writer.

    hook/       Hook, HOOK_REGISTRY, parse_hooks, LogHook, CheckPointHook
    logger/     Logger, ProgressLogger, Writer and those that come with it, parse_writer
    engine/     DefaultTrainer with the loop of its document, on a plan of hookline
    model/ renderer/ optimizer/ dataset/   registries for the sections of a trainer's config, and what is built of them
    utils/      config (OmegaConf), registry

`DefaultTrainer` is the host of a plan and has a loop of its own; order of hooks, calls, checkpoints, signals, writers
and the terminal are those of the core.
"""
