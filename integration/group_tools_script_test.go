//go:build clients

package integration

// groupToolsScript is what TestGroupTools runs, a command a line. Lines that begin with "file" write the FILE; those with "4"
// are for Kafka 4 alone: it has the tool first, or 3.9.1 asks for the partition that is not there until its time is up.
const groupToolsScript = `
kafka-consumer-groups --list
kafka-consumer-groups --list --state
kafka-consumer-groups --list --state Stable
kafka-consumer-groups --list --state empty,Dead
kafka-consumer-groups --list --state Assigning,Reconciling,PreparingRebalance
kafka-consumer-groups --list --state bogus
kafka-consumer-groups --list --type
kafka-consumer-groups --list --type classic
kafka-consumer-groups --list --type Consumer
kafka-consumer-groups --list --type consumer --state Empty
kafka-consumer-groups --list --type bogus
4 kafka-groups --list
4 kafka-groups --list --group-type classic
4 kafka-groups --list --group-type consumer
4 kafka-groups --list --group-type share
4 kafka-groups --list --group-type bogus
4 kafka-groups --list --protocol consumer
4 kafka-groups --list --protocol connect
4 kafka-groups --list --protocol consumer --group-type classic
4 kafka-groups --list --consumer
4 kafka-groups --list --share

kafka-consumer-groups --describe --group idle
kafka-consumer-groups --describe --group idle --members
kafka-consumer-groups --describe --group idle --state --verbose
kafka-consumer-groups --describe --group left --offsets --verbose
kafka-consumer-groups --describe --group left --members --verbose
kafka-consumer-groups --describe --group left --state
kafka-consumer-groups --describe --group left-next --offsets --verbose
kafka-consumer-groups --describe --group left-next --members --verbose
kafka-consumer-groups --describe --group left-next --state
kafka-consumer-groups --describe --group live
kafka-consumer-groups --describe --group live --offsets --verbose
kafka-consumer-groups --describe --group live --members
kafka-consumer-groups --describe --group live --members --verbose
kafka-consumer-groups --describe --group live --state
kafka-consumer-groups --describe --group live --state --verbose
kafka-consumer-groups --describe --group live-next
kafka-consumer-groups --describe --group live-next --offsets --verbose
kafka-consumer-groups --describe --group live-next --members
kafka-consumer-groups --describe --group live-next --members --verbose
kafka-consumer-groups --describe --group live-next --state
kafka-consumer-groups --describe --group live-next --state --verbose
kafka-consumer-groups --describe --all-groups
kafka-consumer-groups --describe --all-groups --members
kafka-consumer-groups --describe --all-groups --state
kafka-consumer-groups --describe --group idle --group left
kafka-consumer-groups --describe --group unknown
kafka-consumer-groups --describe --group unknown --members
kafka-consumer-groups --describe --group unknown --state

kafka-consumer-groups --reset-offsets --group idle --topic orders --to-earliest
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-latest --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-current --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-offset 4 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-offset 99 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --shift-by 2 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --shift-by -100 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --shift-by 100 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-datetime 2025-01-01T00:00:05.500 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-datetime 2025-01-01T01:00:05.000+01:00 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-datetime 2020-01-01T00:00:00.000 --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --to-datetime yesterday --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --by-duration PT1M --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders --by-duration P20000D --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic orders:0,2 --topic events --to-earliest --dry-run
4 kafka-consumer-groups --reset-offsets --group idle --topic orders:7 --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group idle --all-topics --to-latest --dry-run
kafka-consumer-groups --reset-offsets --group idle --topic missing --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group idle --all-topics --to-current --export --dry-run
kafka-consumer-groups --reset-offsets --group idle --group left --all-topics --to-current --export --dry-run
kafka-consumer-groups --reset-offsets --all-groups --topic orders --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group live --topic orders --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group live --topic orders --to-earliest --execute
kafka-consumer-groups --reset-offsets --group live-next --topic orders --to-earliest --execute
kafka-consumer-groups --describe --group live

kafka-consumer-groups --reset-offsets --group idle --topic orders:1 --to-offset 8 --execute
kafka-consumer-groups --reset-offsets --group idle --topic orders --shift-by -1 --execute
kafka-consumer-groups --describe --group idle
file orders,0,9 orders,2,77 events,1,0
kafka-consumer-groups --reset-offsets --group idle --from-file FILE --dry-run
kafka-consumer-groups --reset-offsets --group idle --from-file FILE --execute
kafka-consumer-groups --describe --group idle
file idle,orders,0,2 left-next,orders,1,6
kafka-consumer-groups --reset-offsets --group idle --group left-next --from-file FILE --execute
file not,a,number
kafka-consumer-groups --reset-offsets --group idle --from-file FILE --dry-run
kafka-consumer-groups --reset-offsets --group idle --group left --all-topics --to-datetime 2025-01-01T00:00:03.000 --execute
kafka-consumer-groups --reset-offsets --group left-next --all-topics --to-latest --execute
kafka-consumer-groups --describe --group left-next
kafka-consumer-groups --reset-offsets --group left-next --topic orders:0 --topic events:1 --by-duration P20000D --execute
kafka-consumer-groups --describe --group left-next
kafka-consumer-groups --reset-offsets --group made --topic events --to-latest --execute
kafka-consumer-groups --describe --group made
kafka-consumer-groups --list --type --state

kafka-consumer-groups --delete-offsets --group idle --topic orders:1
kafka-consumer-groups --delete-offsets --group idle --topic events --topic orders:0
kafka-consumer-groups --describe --group idle
kafka-consumer-groups --delete-offsets --group idle --topic missing
kafka-consumer-groups --delete-offsets --group idle --topic orders:7
kafka-consumer-groups --delete-offsets --group unknown --topic orders
kafka-consumer-groups --delete-offsets --group live --topic orders
kafka-consumer-groups --delete-offsets --group live-next --topic orders:0
kafka-consumer-groups --delete-offsets --group left-next --topic orders
kafka-consumer-groups --describe --group left-next

kafka-consumer-groups --delete --group live
kafka-consumer-groups --delete --group live-next
kafka-consumer-groups --delete --group unknown
kafka-consumer-groups --delete --group idle --group live
kafka-consumer-groups --delete --group made --group left-next
kafka-consumer-groups --list --state
kafka-consumer-groups --delete --all-groups
kafka-consumer-groups --list --state

kafka-get-offsets --topic orders
kafka-get-offsets --topic orders --time -2
kafka-get-offsets --topic orders --time max-timestamp
kafka-get-offsets --topic orders --time 1735689603001
kafka-get-offsets --topic orders --time 1999999999999
kafka-get-offsets --topic orders --time earliest-local
kafka-get-offsets --topic orders --time latest-tiered
kafka-get-offsets --topic orders --time soon
kafka-get-offsets --topic or.*|events --partitions 0,2
kafka-get-offsets --topic-partitions orders:1,events:1-,ord.*:-1
kafka-get-offsets --topic missing
kafka-get-offsets --exclude-internal-topics
`
