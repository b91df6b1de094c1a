import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

/**
 * A consumer of a group goes to and fro in a topic of two partitions with ten records each; record i of a partition has
 * the time (1000+i)*1000. Answers with the first thing that is not as it should be, or with an empty string.
 */
class Walk {
    static String run(Properties props, String topic) {
        TopicPartition p0 = new TopicPartition(topic, 0), p1 = new TopicPartition(topic, 1);
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(props)) {
            c.subscribe(List.of(topic));
            List<String> failed = new ArrayList<>();
            same(failed, "all records", Map.of(p0, List.of(0L, 9L, 10L), p1, List.of(0L, 9L, 10L)), read(c, 20));
            same(failed, "positions", List.of(10L, 10L), List.of(c.position(p0), c.position(p1)));
            same(failed, "beginning", Map.of(p0, 0L, p1, 0L), c.beginningOffsets(Set.of(p0, p1)));
            same(failed, "end", Map.of(p0, 10L, p1, 10L), c.endOffsets(Set.of(p0, p1)));

            c.pause(Set.of(p0));
            c.seekToBeginning(Set.of(p0, p1));
            same(failed, "records while partition 0 is paused", Map.of(p1, List.of(0L, 9L, 10L)), read(c, 10));
            same(failed, "position while paused", 0L, c.position(p0));
            same(failed, "paused", Set.of(p0), c.paused());
            c.resume(Set.of(p0));
            same(failed, "records when it goes on", Map.of(p0, List.of(0L, 9L, 10L)), read(c, 10));

            Map<TopicPartition, OffsetAndTimestamp> at = c.offsetsForTimes(Map.of(p0, 1_003_001L, p1, 2_000_000L));
            same(failed, "offset for a time", 4L, at.get(p0).offset());
            same(failed, "its time", 1_004_000L, at.get(p0).timestamp());
            same(failed, "offset for a time behind all", null, at.get(p1));
            c.seek(p0, at.get(p0).offset());
            same(failed, "records from that time on", Map.of(p0, List.of(4L, 9L, 6L)), read(c, 6));
            c.seek(p1, new OffsetAndMetadata(7));
            same(failed, "records from an offset on", Map.of(p1, List.of(7L, 9L, 3L)), read(c, 3));
            c.seekToEnd(Set.of(p0));
            same(failed, "position at the end", 10L, c.position(p0));

            c.commitSync(Map.of(p0, new OffsetAndMetadata(3, "here"), p1, new OffsetAndMetadata(4)));
            Map<TopicPartition, OffsetAndMetadata> committed = c.committed(Set.of(p0, p1));
            same(failed, "committed", List.of(3L, "here", 4L), List.of(committed.get(p0).offset(), committed.get(p0).metadata(), committed.get(p1).offset()));
            c.unsubscribe();
            c.subscribe(List.of(topic));
            same(failed, "records from the commits on", Map.of(p0, List.of(3L, 9L, 7L), p1, List.of(4L, 9L, 6L)), read(c, 13));
            return String.join("; ", failed);
        }
    }

    static void same(List<String> failed, String what, Object want, Object got) {
        if (want == null ? got != null : !want.equals(got)) {
            failed.add(what + ": " + got + ", want " + want);
        }
    }

    /** Reads so many records: of each partition the first offset, the last, and how many. */
    static Map<TopicPartition, List<Long>> read(KafkaConsumer<String, String> c, int n) {
        Map<TopicPartition, List<Long>> all = new HashMap<>();
        for (long end = System.nanoTime() + Duration.ofSeconds(20).toNanos(); n > 0 && System.nanoTime() < end; ) {
            for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
                all.merge(new TopicPartition(r.topic(), r.partition()), List.of(r.offset(), r.offset(), 1L), (a, b) -> List.of(a.get(0), b.get(1), a.get(2) + 1));
                n--;
            }
        }
        return all;
    }
}
