// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The class of each application at each interface, read by programs at cgroups and at interfaces.

struct class_key {
	__u64 application;
	__u32 interface;
	__u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct class_key);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} classes SEC(".maps");
