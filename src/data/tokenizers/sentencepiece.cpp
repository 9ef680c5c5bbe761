// SentencePiece models. The code over libsentencepiece (sentencepiece_library.cpp) is loaded when it is first
// needed, with names of its own: that library and torch's libc10 both define FLAGS_minloglevel, of different
// sizes, and linked into one program one of them would write over the other's variables.
// no_sentencepiece.cpp stands in where the library is missing.
#include <edgewise/data/sentencepiece.h>

#include <dlfcn.h>

#include "data/text/failure.h"
#include "data/tokenizers/tokenizer_files.h"

namespace edgewise::data {
namespace {

using Load = Tokenizer*(const std::string& name, const std::string& model);

// It lies beside the library that this file is part of.
Load* loaded_library() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&has_sentencepiece), &own) == 0)
    fail("load_sentencepiece: expected to find the library that holds this function; dladdr knows of none");
  const std::string path =
      (std::filesystem::path(own.dli_fname).parent_path() / "libedgewise_sentencepiece.so").string();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) fail("load_sentencepiece: expected the library ", path, "; ", dlerror());
  void* const found = dlsym(library, "edgewise_sentencepiece");
  if (!found)
    fail("load_sentencepiece: expected the function edgewise_sentencepiece in ", path, "; ", dlerror());
  return reinterpret_cast<Load*>(found);
}

}  // namespace

bool has_sentencepiece() {
  return true;
}

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model) {
  static Load* const load = loaded_library();
  const TextFile file = read_text_file(model, "a model of SentencePiece");
  return std::unique_ptr<Tokenizer>(load(file.name, file.text));
}

}  // namespace edgewise::data
