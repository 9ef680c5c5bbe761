// What reading and writing recipes ask the registries of attentions and of tasks, without torch's headers.
#pragma once

#include <edgewise/train/recipe.h>

#include <string>
#include <vector>

namespace edgewise::train {

std::vector<std::string> attention_names();  // in the order of the help
std::string attention_meaning(const std::string& kind);
// The kinds that read a section of options; empty for data, model, attention and train, which are
// everybody's.
std::vector<std::string> kinds_that_read(const std::string& section);
bool reads_section(const std::string& kind, const std::string& section);
// Of the sections it reads, all keys but attention.unit where it has no squares.
bool reads_key(const Recipe& recipe, const std::string& section, const std::string& key);
bool takes_edges(const Recipe& recipe);  // whether its kind attends over those of attention.edges

std::vector<std::string> task_names();  // in the order of the help
std::string task_meaning(const std::string& task);
const std::vector<OwnOption>& task_options(const std::string& task);
bool task_has_decoder(const Recipe& recipe);

// Whether a run reads the section: of its kind of attention, of the pattern in attention.edges, of its task,
// or everybody's.
bool reads_section(const Recipe& recipe, const std::string& section);

}  // namespace edgewise::train
