"""Starting several processes: a command with torch's elastic launcher, or a function from a script or a notebook.

    elastic.run(command, Options(nproc=2))      -> the exit code
    functions.launch(function, nproc=2)         -> the results, by rank; this is `hookline.launch`

The messages of a started process to its launcher are in `hookline.common.launched`.
"""
