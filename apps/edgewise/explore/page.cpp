#include "explore/page.h"

#include <zlib.h>

#include <c10/util/Exception.h>

#include <array>

#include "base64.h"
#include "explore/page_bytes.h"

namespace edgewise::app {
namespace {

std::string_view type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

std::vector<PageFile> all_files() {
  std::vector<PageFile> files;
  for (const EmbeddedFile& file : kPageBytes)
    files.push_back({file.name, type_of(file.name), {reinterpret_cast<const char*>(file.bytes), file.size}});
  return files;
}

const std::vector<PageFile>& files() {
  static const std::vector<PageFile> all = all_files();
  return all;
}

std::string_view content_of(std::string_view name) {
  const PageFile* file = page_file(name);
  TORCH_INTERNAL_ASSERT(file, "no file ", name, " of the page");
  return file->content;
}

std::string gzipped(const std::string& bytes) {
  constexpr int kGzip = 15 + 16, kMemory = 8;
  z_stream stream{};
  TORCH_CHECK(
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) == Z_OK,
      "report: expected zlib to start; it did not");
  std::string result(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int status = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  TORCH_CHECK(status == Z_STREAM_END, "report: expected zlib to compress ", bytes.size(),
              " bytes; it did not");
  return result;
}

}  // namespace

const PageFile* page_file(std::string_view name) {
  for (const PageFile& file : files())
    if (file.name == name) return &file;
  return nullptr;
}

std::string embedded_page(const std::vector<std::pair<std::string, std::string>>& data) {
  std::string html = "<style>\n" + std::string(content_of("style.css")) +
                     "</style>\n<div id=\"explorer\" data-given=\"light\"></div>\n";
  for (const auto& [address, bytes] : data)
    html += "<script type=\"text/plain\" data-explorer=\"" + address + "\">" + base64(gzipped(bytes)) +
            "</script>\n";
  // In the order in which index.html names them.
  const std::string_view index = content_of("index.html");
  constexpr std::string_view kScript = "<script src=\"";
  for (size_t at = index.find(kScript); at != std::string_view::npos; at = index.find(kScript, at + 1)) {
    const size_t begin = at + kScript.size();
    const std::string_view name = index.substr(begin, index.find('"', begin) - begin);
    // By these a Worker finds what it runs.
    html += "<script id=\"explorer-" + std::string(name) + "\">\n" + std::string(content_of(name)) +
            "</script>\n";
  }
  return html;
}

}  // namespace edgewise::app
