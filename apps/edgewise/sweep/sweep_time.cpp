#include "sweep/sweep_time.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/environment.h>

#include <nlohmann/json.hpp>

#include "runs.h"

namespace edgewise::app {

void write_step_file(const std::filesystem::path& run, const std::string& line) {
  const auto measured = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool has_times = measured.is_object() && measured.contains("edgewise_ms") &&
                         measured["edgewise_ms"].is_number() && measured.contains("dense_ms");
  TORCH_CHECK(has_times, "sweep --time: expected times of ", run.string(), "; `bench train` said: ", line);
  nlohmann::ordered_json step = {{"step_ms", measured["edgewise_ms"]}, {"dense_ms", measured["dense_ms"]}};
  for (const char* key : {"density", "dtype", "edgewise_spread", "dense_spread", "threads"})
    if (measured.contains(key)) step[key] = measured[key];
  step["environment"] = nlohmann::ordered_json::parse(io::to_json(io::describe_environment()));
  io::write_file_atomically(run / kStepFile, step.dump() + "\n");
}

}  // namespace edgewise::app
