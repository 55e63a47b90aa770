/* SPDX-License-Identifier: Apache-2.0 */
#include <orch.h>

#ifdef __linux__
/* Swift's Glibc module is without the GNU extensions, and a pipe has to be close-on-exec from birth. */
extern int pipe2(int ends[2], int flags);
#endif
