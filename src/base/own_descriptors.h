// The descriptors that Weft has for itself in this process, below a library that replaces close(2)
// and its relatives.
//
// A program that knows nothing of Weft takes all descriptors that it did not open for leftovers of
// its parent: it closes them (closefrom(3)), or puts its own files at their numbers (dup2(2)). Such
// a library asks here which ones it must leave out. It also wants them at high numbers: some
// programs have tables that are as long as the number of their connections.
#pragma once

namespace weft::own_descriptors {

// A bit for each number. In the child after fork(2) none is set, however the child was made: what
// it inherited of Weft's is of no use to it, and it may close that.
struct Account;

// Memory for it, which is never given back. Null where the kernel refuses it.
[[nodiscard]] Account* make_account();
// From now on this copy of Weft's code notes in `account` what it opens, and gives it numbers from
// `first` on, if there are any; that takes two more system calls for each. All libraries of a
// process that have a copy of their own use one account. Before this call nothing is noted, and
// descriptors are where the kernel puts them. Null: they are only moved. To be called before other
// threads run.
void keep_account(Account* account, int first);

// --- What OwnedDescriptor calls. Thread-safe. A descriptor is removed before it is closed, because
// another thread may get its number at once.
void add(int fd);
void remove(int fd);

// Moves `fd` to a high number. Where none is free, or none is wanted, returns `fd` itself.
[[nodiscard]] int moved_high(int fd);
// Another descriptor of the same file, at a high number where one is free; or -1 with errno.
[[nodiscard]] int copy_high(int fd);

// --- What the library that replaces close(2) asks. Thread-safe and safe in a signal handler. A
// descriptor that another thread opens at this moment may not be noted yet.
[[nodiscard]] bool owns(int fd);
// The least number of `first` to `last` that is Weft's own; -1 if there is none.
[[nodiscard]] int first_in(unsigned first, unsigned last);

}  // namespace weft::own_descriptors
