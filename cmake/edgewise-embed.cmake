# cmake -DFILES="a;b" -DOUT=file.cpp -P edgewise-embed.cmake: the files as the arrays of explore/page_bytes.h.
set(arrays "")
set(table "")
set(index 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${name}\", kFile${index}, sizeof(kFile${index}) - 1},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUT}" "// Written by the build.\n#include \"explore/page_bytes.h\"\n\nnamespace edgewise::app {\nnamespace {\n\n"
  "${arrays}\nconstexpr EmbeddedFile kFiles[] = {\n${table}};\n\n}  // namespace\n\n"
  "const std::span<const EmbeddedFile> kPageBytes = kFiles;\n\n}  // namespace edgewise::app\n")
