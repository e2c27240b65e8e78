"""The Pointrix dialect: a trainer that counts steps from 1, hooks from a YAML file, and a writer.

    hook/       Hook, HOOK_REGISTRY, parse_hooks, LogHook, CheckPointHook
    logger/     Logger, ProgressLogger, Writer, the built-in writers, parse_writer
    engine/     DefaultTrainer, with the loop that Pointrix documents, on a plan of hookline
    model/ renderer/ optimizer/ dataset/   registries and builders for the sections of a trainer's config
    utils/      config (OmegaConf), registry

`DefaultTrainer` is the host of a plan and has its own loop. The core does the rest: it orders and calls the hooks,
and handles checkpoints, signals, writers and the terminal.
"""
