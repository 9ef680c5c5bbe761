// A file of its own: the only one that is compiled anew after a commit. The header is written at every build.
#include "io/git_commit.h"

#include "edgewise_git_commit.h"

namespace edgewise::io {

const char* git_commit() {
  return EDGEWISE_GIT_COMMIT;
}

}  // namespace edgewise::io
