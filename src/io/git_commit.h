// The commit this library was built from.
#pragma once

namespace edgewise::io {

// Twelve or more hexadecimal digits, "-dirty" behind them when tracked files differed at the last build;
// "unknown" outside of a git checkout.
const char* git_commit();

}  // namespace edgewise::io
