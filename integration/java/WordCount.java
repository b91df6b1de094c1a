import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words exactly once with Kafka Streams until its input ends. Without a cache every step of a count goes out: whoever
 * reads the topic of counts sees 1, 2, 3 … of each word. Arguments: application, directory, topic of lines, topic of counts, broker.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        StreamsBuilder b = new StreamsBuilder();
        b.<String, String>stream(args[2])
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.as("counts"))
                .toStream()
                .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));

        Properties p = new Properties();
        p.put("bootstrap.servers", args[4]);
        p.put("application.id", args[0]);
        p.put("state.dir", args[1]);
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("default.key.serde", Serdes.String().getClass().getName());
        p.put("default.value.serde", Serdes.String().getClass().getName());
        p.put("statestore.cache.max.bytes", "0");
        p.put("num.standby.replicas", "1");
        p.put("commit.interval.ms", "50");
        p.put("repartition.purge.interval.ms", "200");
        p.put("reconnect.backoff.max.ms", "200");
        p.put("enable.metrics.push", "false");
        p.put("producer.transaction.timeout.ms", "4000");
        p.put("consumer.session.timeout.ms", "6000");
        p.put("consumer.heartbeat.interval.ms", "500");
        p.put("consumer.auto.offset.reset", "earliest");

        KafkaStreams s = new KafkaStreams(b.build(), p);
        s.setUncaughtExceptionHandler(e -> {
            System.err.println("a thread begins anew after " + e);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        s.setStateListener((now, before) -> System.out.println(now));
        s.start();
        while (System.in.read() >= 0) {
        }
        System.exit(s.close(Duration.ofSeconds(20)) ? 0 : 1);
    }
}
