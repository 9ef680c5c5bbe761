# cmake -DGIT=... -DSOURCE=... -DHEADER=... -P edgewise-git-commit.cmake: writes the commit of the source tree into a
# header, "-dirty" behind it when tracked files differ. An unchanged header is not touched, so nothing is compiled anew.
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
if(GIT AND EXISTS "${SOURCE}/.git")
  # --exclude: the commit, not its distance from a tag.
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND found)
    set(commit "${found}")
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define EDGEWISE_GIT_COMMIT \"@commit@\"\n" @ONLY)
