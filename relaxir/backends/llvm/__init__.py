"""The LLVM backend, from LLVM text to running code.

The path, one module each: ``target`` (what to compile for), ``compile`` and ``worker`` (text to object, in child
processes), ``cache`` (objects on disk), ``elf*`` (objects to a shared library), ``loader`` (bytes to code in this
process). ``runtime_ir`` gathers the parts of the runtime that every library contains (``pool_ir``, ``memory_ir``,
``workspace_ir``, ``cpu_ir``, ``call_ir``, ``api_ir``; their records are in ``layout``), ``header`` its C face, and
``library`` ties all together.
"""
