#include "cm/fixture.h"
