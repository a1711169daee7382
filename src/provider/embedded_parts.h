// Private to the embedded provider: each of its files sets its own members of the table.
#pragma once

#include "provider/table.h"

namespace weft::provider::parts {

void devices(Table& table);
void events(Table& table);
void memory(Table& table);
void imports(Table& table);
void queues(Table& table);
void queue_pairs(Table& table);
void addressing(Table& table);
void connections(Table& table);
void counters(Table& table);
void captures(Table& table);

}  // namespace weft::provider::parts
