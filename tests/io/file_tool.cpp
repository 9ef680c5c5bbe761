// edgewise_file_tool: our file readers and writers as a program, for the Python tests to check against the
// real packages.
//   edgewise_file_tool safetensors-copy IN OUT
//   edgewise_file_tool tensorboard-write OUT_DIR
#include <cmath>
#include <cstdio>
#include <exception>
#include <string_view>

#include <c10/util/Exception.h>

#include <edgewise/io/safetensors.h>
#include <edgewise/io/tensorboard.h>

namespace {

// tests/python/test_tensorboard.py expects exactly these.
void write_events(const char* folder) {
  using edgewise::io::TensorBoardWriter;
  TensorBoardWriter first(folder);
  for (int step = 0; step < 300; ++step) {
    const TensorBoardWriter::Scalar scalars[] = {{"train/loss", 1.0 / (1 + step)},
                                                 {"square", 1.0 * step * step}};
    first.add_scalars(scalars, step);
  }
  first.add_scalar("not a number", NAN, 0);
  first.add_scalar("large step", 1.0, int64_t{1} << 40);
  TensorBoardWriter resumed(folder);
  resumed.mark_restart(200);
  resumed.add_scalar("train/loss", -1.0, 200);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  try {
    if (command == "safetensors-copy" && argc == 4) {
      edgewise::io::save_safetensors(argv[3], edgewise::io::load_safetensors(argv[2]));
    } else if (command == "tensorboard-write" && argc == 3) {
      write_events(argv[2]);
    } else {
      std::fprintf(stderr, "usage: edgewise_file_tool safetensors-copy IN OUT | tensorboard-write OUT_DIR\n");
      return 2;
    }
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
