"""Functions that kernels inline: compiled as far as LLVM's input only, since no machine code of their own is ever run.

Numba compiles each function that a kernel calls as it compiles the kernel: it optimises it, makes machine code of it,
and adds wrappers through which Python and C could call it. Here all of that happens once, in the kernel that the
function becomes a part of. A cold start takes about half as long.
"""

from __future__ import annotations

from typing import Any

from numba.core import compiler, typed_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import register_pass


class _Library(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """A function's LLVM module as it is linked into kernels: not optimised, and given to no execution engine."""

    def _optimize_final_module(self) -> None:
        """Leaves that to the kernels."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class _Lowering(typed_passes.NativeLowering):  # type: ignore[misc, unused-ignore]
    """Numba's lowering into a ``_Library``."""

    _name = "lowering_of_what_is_inlined"

    def run_pass(self, state: Any) -> bool:
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        lowered = state["cr"]
        # Numba knows a compiled function by an object of C's, different for each. This one refuses arguments, if ever
        # the function is called from Python.
        key = [lowered.fndesc.qualname].clear
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=key)
        return True


class Inlined(compiler.CompilerBase):  # type: ignore[misc, unused-ignore]
    """Numba's compiler for a function that is part of kernels: an argument of ``njit``, as ``pipeline_class``."""

    def define_pipelines(self) -> list[Any]:
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state, "inlined")
        found = [place for place, (kind, _) in enumerate(pipeline.passes) if kind is typed_passes.NativeLowering]
        (place,) = found
        pipeline.passes[place] = (_Lowering, "native lowering of what is inlined")
        pipeline._finalized = False
        pipeline.finalize()
        return [pipeline]
