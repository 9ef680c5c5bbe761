#include "explore/http_server.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <filesystem>

#include <edgewise/version.h>

namespace edgewise::app {
namespace {

// Empty when it has served; else what went wrong.
using Serve = std::string(const HttpServerOptions& options);

// It lies beside libedgewise.
Serve* loaded_library() {
  Dl_info own{};
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&edgewise::version), &own) != 0,
              "explore: expected to find the folder of libedgewise; dladdr knows of none");
  const std::string path =
      (std::filesystem::path(own.dli_fname).parent_path() / "libedgewise_http.so").string();
  // Deep: libtorch exports an httplib of its own, of another version, which would be found first.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  TORCH_CHECK(library, "explore: expected the library ", path, " and libcpp-httplib under it; ", dlerror(),
              ". Install libcpp-httplib0.11 (Debian), or use edgewise report, which needs no server");
  void* const found = dlsym(library, "edgewise_serve_http");
  TORCH_CHECK(found, "explore: expected the function edgewise_serve_http in ", path, "; ", dlerror());
  return reinterpret_cast<Serve*>(found);
}

}  // namespace

void serve_http(const HttpServerOptions& options) {
  static Serve* const serve = loaded_library();
  const std::string problem = serve(options);
  TORCH_CHECK(problem.empty(), "explore: ", problem);
}

}  // namespace edgewise::app
