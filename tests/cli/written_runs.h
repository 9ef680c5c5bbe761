// Run folders as training leaves them, for what reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "kit/scratch_folder.h"

namespace edgewise::cli {

// A run folder as training leaves it, with the given test figures; no accuracy: stopped before its test.
inline void write_run(const kit::ScratchFolder& scratch, const std::string& name, const std::string& recipe,
                      const std::string& accuracy, const std::string& density, int64_t step = 5000) {
  std::filesystem::create_directories(scratch / name);
  scratch.write(name + "/config.toml", recipe);
  const std::string at = "\"step\": " + std::to_string(step) + ", ";
  scratch.write(
      name + "/metrics.jsonl",
      "{\"kind\": \"train\", " + at +
          R"("task_loss": 1.5, "density": [0.2, 0.3, 0.1, 0.4], "time_examples_per_s": 5.0, "memory_peak_mb": 7.0}
{"kind": "eval", )" +
          at +
          R"("split": "validation", "loss": 1.0, "accuracy": 0.5, "density": [0.1, 0.1, 0.1, 0.1]}
)" +
          (accuracy.empty() ? ""
                            : R"({"kind": "test", )" + at + R"("split": "test", "loss": 1.25, "accuracy": )" +
                                  accuracy + R"(, "density": )" + density + "}\n"));
}

inline std::string listops_recipe(const std::string& attention, int seed, const std::string& more = "") {
  return "[data]\nname = \"listops\"\npath = \"none\"\n[attention]\n" + attention +
         "\n[train]\nsteps = 5000\nbatch = 128\nseed = " + std::to_string(seed) + "\n" + more;
}

}  // namespace edgewise::cli
