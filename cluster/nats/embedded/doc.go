// Package embedded runs a NATS server in this process, for clusters that need no other.
//
// [Join] is all that a program needs. On one machine, the processes that join a cluster with the
// same folder share one server, which runs in one of them. When that process ends, also by kill
// -9, another one starts the server on the same folder. All Engines reconnect by themselves:
// buckets on file have what they had, and those in memory are empty.
//
// With Seeds, the servers of three or more machines form one cluster of NATS servers, and each
// bucket has three replicas on file. They recognize each other by the key of the cluster. A server
// says in its log which others it waits for. When a cluster starts for the first time, it needs all
// servers but one, and three. Later it needs more than half. A cluster of servers outside of the
// processes is the better choice for large installations; see package nats.
//
// [Attach] uses a cluster that runs on this machine, and starts nothing.
//
// What a process has written to a bucket on file survives the end of the process, however it ends.
// After a loss of power the last two minutes may be missing.
package embedded
