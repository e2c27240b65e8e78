"""iMIX's hooks and engine on hookline's core.

    engine/            imixEngine, CommonEngine, EngineBase
      hooks/           HookBase, HOOKS, PriorityStatus; one module a hook
        periods/       checkpoints, and the writers of records
    solver/            optimizers and learning-rate policies by name
    utils/             Config

An engine trains with a native Runner: its hooks stand in that runner's plan, and loop, update, checkpoints, resume and
signals are the native ones. What hooks see of the engine (`self.trainer`) is iMIX's.
"""
