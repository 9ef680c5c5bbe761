// The files of the page (apps/edgewise/explore/page/), which the build puts into the program, and the page as
// a part of another HTML file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgewise::app {

struct PageFile {
  std::string_view name, type, content;
};

// Null when there is none of that name.
const PageFile* page_file(std::string_view name);

// Style, scripts and data in one piece of HTML that needs nothing beside it. `data`: addresses below /api/
// and what would be answered; anything else the page says it does not have.
std::string embedded_page(const std::vector<std::pair<std::string, std::string>>& data);

}  // namespace edgewise::app
