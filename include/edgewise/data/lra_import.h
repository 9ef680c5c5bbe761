// What the tasks of the Long Range Arena are distributed as, read into ByteExamples. Every reader finds out
// itself which of its layouts the folder holds; files may be xz-compressed where the name below says [.xz].
// Anything malformed is an error that names the file, the line or offset, what was expected and what was
// found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <edgewise/data/byte_examples.h>

namespace edgewise::data {

// Hears how many examples are read and how many there are (0 = not known).
using ImportProgress = std::function<void(int64_t done, int64_t total)>;

// CIFAR-10 in grey, 32 x 32 pixels: floor(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255). The first nine
// tenths of the training images train, the last tenth validates. (The published split is TFDS's order, which
// the official files do not have.) Layouts:
//   data_batch_1.bin .. data_batch_5.bin, test_batch.bin    the official binary version
//   images-Nx32x32.u8[.xz], labels-N.u8                     grey already; the last sixth is the test set
// or the first in a folder cifar-10-batches-bin.
ByteExamples import_image(const std::filesystem::path& folder, const ImportProgress& progress = {});

// IMDB reviews as bytes, label 1 = positive. The last tenth of each label's training reviews, by id,
// validates: reviews of one film have neighbouring ids, so hardly a film is on both sides. Layouts:
//   train/{neg,pos}/ID_RATING.txt, test/...                 the official folder aclImdb, or a folder that
//   holds it train.tsv[.xz], test.tsv[.xz]                           label, id, rating, text
ByteExamples import_text(const std::filesystem::path& folder, const ImportProgress& progress = {});

// Pathfinder, 32 x 32 pixels, label 1 = the two marks are on one path. Eight tenths train, one validates, one
// tests. Layouts:
//   metadata/*.npy (text), imgs/*/*.png                     the official release, e.g.
//   pathfinder32/curv_contour_length_14,
//                                                           or the folder above it (then the hard set is
//                                                           taken); shuffled
//   images-Nx32x32.u8[.xz], labels-N.u8                     split by position
ByteExamples import_pathfinder(const std::filesystem::path& folder, const ImportProgress& progress = {});

// Pairs of documents, label 1 = related (one cites the other). The first 4,000 bytes of each are kept.
// Layouts:
//   new_aan_pairs.{train,eval,test}.tsv[.xz]                the official AAN files: label, id1, id2, text1,
//   text2 docs.tsv[.xz], pairs.tsv[.xz]                           index, text; split (train, dev, test),
//   label, index1, index2
ByteExamples import_retrieval(const std::filesystem::path& folder, const ImportProgress& progress = {});

}  // namespace edgewise::data
