"""The hooks and the engine of iMIX, built on hookline's core.

    engine/            imixEngine, CommonEngine, EngineBase, Organizer
      hooks/           HookBase, HOOKS, PriorityStatus; one module per hook
        periods/       checkpoints and loggers
    solver/            optimizers and learning-rate policies, built by name
    utils/             Config, Registry

An engine trains with a native Runner. Its hooks are part of that runner's plan, and the loop, the update, checkpoints,
resuming and signals are the native ones. Hooks see the engine with iMIX's interface, as `self.trainer`.
"""
