// IMDB reviews into byte sequences.
#include <edgewise/data/lra_import.h>

#include <algorithm>
#include <charconv>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

#include "data/readers/compressed.h"
#include "data/readers/table_lines.h"

namespace edgewise::data {

namespace {

constexpr int64_t kReviews = 50'000;  // for progress only
constexpr std::array<const char*, 2> kLabels = {"neg", "pos"};

struct Review {
  int64_t label = 0;
  int64_t id = 0;
  std::string text;
};
using Reviews = std::vector<Review>;

class Counter {
 public:
  explicit Counter(const ImportProgress& progress) : progress_(progress) {}
  void count() {
    if (++done_ % 1000 == 0 && progress_) progress_(done_, kReviews);
  }

 private:
  const ImportProgress& progress_;
  int64_t done_ = 0;
};

Reviews read_table(const std::filesystem::path& path, Counter& counter) {
  const std::vector<uint8_t> bytes = read_plain_or_xz(path);
  TableLines lines(as_text(bytes), path.string());
  std::vector<std::string_view> fields;
  Reviews reviews;
  while (lines.next_row(fields, 4, '\t', "label, id, rating, text")) {
    const int64_t label = lines.number(fields[0], 2, "a label");
    reviews.push_back({label, lines.number(fields[1], 1'000'000'000, "an id"), std::string(fields[3])});
    counter.count();
  }
  return reviews;
}

// ID_RATING.txt
int64_t id_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  int64_t id = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  TORCH_CHECK_VALUE(error == std::errc() && end != name.data() + name.size() && *end == '_', path.string(),
                    ": expected a name like 123_7.txt (id and rating)");
  return id;
}

Reviews read_folder(const std::filesystem::path& folder, Counter& counter) {
  Reviews reviews;
  for (size_t label = 0; label < kLabels.size(); ++label) {
    const std::filesystem::path of_label = folder / kLabels[label];
    TORCH_CHECK_VALUE(std::filesystem::is_directory(of_label), "text: expected the folder ",
                      of_label.string(), " of aclImdb; there is none");
    for (const auto& entry : std::filesystem::directory_iterator(of_label)) {
      if (entry.path().extension() != ".txt") continue;
      reviews.push_back({static_cast<int64_t>(label), id_of(entry.path()), io::read_file(entry.path())});
      counter.count();
    }
  }
  return reviews;
}

struct Source {
  Reviews train, test;
};

Source read_any(const std::filesystem::path& folder, const ImportProgress& progress) {
  Counter counter(progress);
  for (const char* below : {"", "aclImdb"}) {
    const std::filesystem::path root = below[0] ? folder / below : folder;
    if (std::filesystem::is_directory(root / "train" / "pos")) {
      return {read_folder(root / "train", counter), read_folder(root / "test", counter)};
    }
  }
  const auto train = find_plain_or_xz(folder / "train.tsv"), test = find_plain_or_xz(folder / "test.tsv");
  TORCH_CHECK_VALUE(train && test,
                    "text: expected train/pos, train/neg, test/pos and test/neg (aclImdb), or train.tsv[.xz] "
                    "and test.tsv[.xz] in ",
                    folder.string(), "; found neither");
  return {read_table(*train, counter), read_table(*test, counter)};
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

ByteExamples import_text(const std::filesystem::path& folder, const ImportProgress& progress) {
  Source source = read_any(folder, progress);
  for (Reviews* reviews : {&source.train, &source.test}) {
    TORCH_CHECK_VALUE(!reviews->empty(), "text: expected reviews in ", folder.string(), "; found none");
    std::ranges::stable_sort(*reviews, {}, [](const Review& r) { return std::pair(r.label, r.id); });
  }
  ByteExamples examples("text");
  examples.source = folder.string();
  for (int64_t label = 0; label < 2; ++label) {
    const auto is_label = [&](const Review& review) { return review.label == label; };
    const int64_t count = std::ranges::count_if(source.train, is_label), train = count - count / 10;
    int64_t taken = 0;
    for (const Review& review : source.train) {
      if (!is_label(review)) continue;
      examples.add_example(taken++ < train ? Split::kTrain : Split::kValidation, bytes_of(review.text),
                           label);
    }
  }
  for (const Review& review : source.test) {
    examples.add_example(Split::kTest, bytes_of(review.text), review.label);
  }
  const auto all = static_cast<int64_t>(source.train.size() + source.test.size());
  if (progress) progress(all, all);
  return examples;
}

}  // namespace edgewise::data
