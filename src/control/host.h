/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - the name of this machine, by which a supervisor says where it is. */
#ifndef LOCKSTEP_CONTROL_HOST_H
#define LOCKSTEP_CONTROL_HOST_H

enum { HOST_NAME_BYTES = 65 };

void host_name(char out[HOST_NAME_BYTES]); /* "": the system does not say */

#endif
