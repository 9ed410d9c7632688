"""Puts the C library into the wheel, which then is for this platform and for every Python 3."""

import os
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibraryHook(BuildHookInterface):
    """Takes the library that NUTHATCH_LIBRARY names; packaging/c-library.sh builds it."""

    def initialize(self, version, build_data):
        library = os.environ.get("NUTHATCH_LIBRARY", "")
        if not os.path.isfile(library):
            raise RuntimeError("NUTHATCH_LIBRARY must name libnuthatch.so.1: build it with packaging/c-library.sh")
        build_data["force_include"][os.path.abspath(library)] = "nuthatch_embed/libnuthatch.so.1"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
