// Reading a text file line by line, whatever the lengths of its lines.
#include "data/readers/compressed.h"
#include "data/text/each_line.h"
#include "data/text/text_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  each_line(file, [&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

TEST(EachLine, LinesComeWithTheirEndsFromPlainAndCompressedFiles) {
  const kit::ScratchFolder folder;
  const std::string text = std::string("a\n\nb\r\n\0c", 8);
  const std::vector<std::string> wanted = {"a\n", "\n", "b\r\n", std::string("\0c", 2)};
  folder.write("plain.txt", text);
  EXPECT_EQ(lines_of(folder / "plain.txt"), wanted);
  const std::vector<uint8_t> packed =
      xz_compress({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  folder.write("packed.txt.xz", std::string(as_text(packed)));
  EXPECT_EQ(lines_of(folder / "packed.txt"), wanted);
  EXPECT_EQ(lines_of(folder / "packed.txt.xz"), wanted);
  folder.write("empty", "");
  EXPECT_TRUE(lines_of(folder / "empty").empty());
}

TEST(EachLine, LinesMayBeLongerOrShorterThanABlock) {
  const kit::ScratchFolder folder;
  std::mt19937_64 random(13);
  std::string text;
  std::vector<std::string> wanted;
  for (const size_t length :
       {size_t{5'000'000}, size_t{0}, size_t{1'048'575}, size_t{1'048'576}, size_t{1'048'574}, size_t{3}}) {
    std::string line(length, 'x');
    for (size_t i = 0; i < length; i += 997) line[i] = static_cast<char>('a' + random() % 26);
    wanted.push_back(line + "\n");
    text += wanted.back();
  }
  folder.write("long.txt", text);
  EXPECT_TRUE(lines_of(folder / "long.txt") == wanted);
  EXPECT_EQ(each_line(folder / "long.txt", [](std::string_view) {}), static_cast<int64_t>(text.size()));
}

TEST(EachLine, FilesThatCannotBeReadAreExplained) {
  const kit::ScratchFolder folder;
  EXPECT_THAT(error_of([&] { lines_of(folder / "none"); }), testing::HasSubstr("expected a text file at"));
  EXPECT_THAT(error_of([&] { lines_of(folder.path()); }), testing::HasSubstr("is a folder"));
  folder.write("bad.xz", "no xz");
  EXPECT_THROW(lines_of(folder / "bad.xz"), std::exception);
}

}  // namespace
}  // namespace edgewise::data
