// ListOps files in the format of Long Range Arena: basic_train.tsv, basic_val.tsv, basic_test.tsv; a header
// "Source<TAB>Target", then one expression and its value per line. The expression is a left-nested binary
// bracketing:
//   [MIN 2 9 4 ]   is written   ( ( ( ( [MIN 2 ) 9 ) 4 ) ] )
#pragma once

#include <string>

#include <edgewise/data/dataset.h>
#include <edgewise/data/listops.h>

namespace edgewise::data {

// The text form of a well-formed expression.
std::string listops_text(std::span<const uint8_t> tokens);

std::string listops_path(const std::string& folder, Split split);  // folder/basic_{train,val,test}.tsv

// Makes the folder when missing; throws when one of the three files could not be written into it.
void prepare_listops_folder(const std::string& folder);

// Appears under its name only when complete. Lines end in CR LF, as in the official files.
void write_listops(const std::string& path, const ListOpsExamples& examples);
// The three files; the folder is made when missing.
void write_listops(const std::string& folder, const ListOpsData& data);

struct ListOpsReadOptions {
  int64_t max_length = 2000;  // a longer expression is an error, never cut
  bool verify = false;        // compare every target with the value of its expression
};

// Reads our files and the official ones (either line ending). Anything malformed is an error that names file,
// line, column, what was expected and what was found.
ListOpsExamples read_listops(const std::string& path, const ListOpsReadOptions& options = {});

}  // namespace edgewise::data
