"""The hooks and the engine of iMIX, built on hookline's core.

    engine/            imixEngine, CommonEngine, EngineBase, Organizer
      hooks/           HookBase, HOOKS, PriorityStatus; one module per hook
        periods/       checkpoints and loggers
    solver/            optimizers and learning-rate policies, built by name
    models/ data/ evaluation/   registries and builders for the sections of a config
    utils/             Config, Registry, and what `tools/run.py` needs

An engine trains with a native Runner. Its hooks are part of that runner's plan, and the loop, the update, checkpoints,
resuming and signals are the native ones. Hooks see the engine with iMIX's interface, as `self.trainer`.
"""
