import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consumers of one group, replaced one at a time by such of the other group.protocol and back, while records flow. Arguments:
 * the classic members' partition.assignment.strategy, "static" or "dynamic", and the broker's address. Prints what has gone wrong,
 * a line each, and "rolled" at the end.
 */
public class Rolling {
    static final String TOPIC = "rolling", GROUP = "roll";
    static final int PARTITIONS = 6;

    final String bootstrap, assignor;
    final boolean statics;
    final Map<TopicPartition, String> owners = new HashMap<>(); // guarded by this
    final Map<String, Integer> read = new ConcurrentHashMap<>();
    final Map<Integer, Long> committed = new TreeMap<>();
    int sent, made;

    Rolling(String assignor, boolean statics, String bootstrap) {
        this.assignor = "org.apache.kafka.clients.consumer." + assignor;
        this.statics = statics;
        this.bootstrap = bootstrap;
    }

    static synchronized void wrong(String what) {
        System.out.println("wrong: " + what);
    }

    class Member extends Thread implements ConsumerRebalanceListener {
        final String name;
        final Properties p = new Properties();
        volatile boolean ending;
        volatile int has;
        KafkaConsumer<String, String> c;

        Member(boolean next, int place) {
            name = "member " + ++made + (next ? " (consumer)" : " (classic)");
            p.put("bootstrap.servers", bootstrap);
            p.put("group.id", GROUP);
            p.put("auto.offset.reset", "earliest");
            p.put("enable.auto.commit", "false");
            p.put("fetch.max.wait.ms", "200");
            p.put("key.deserializer", StringDeserializer.class.getName());
            p.put("value.deserializer", StringDeserializer.class.getName());
            if (next) {
                p.put("group.protocol", "consumer");
            } else {
                p.put("partition.assignment.strategy", assignor);
                p.put("heartbeat.interval.ms", "200");
            }
            if (statics) {
                p.put("group.instance.id", "place-" + place);
            }
            setDaemon(true);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> ps) {
            synchronized (owners) {
                for (TopicPartition tp : ps) {
                    String was = owners.put(tp, name);
                    if (was != null && !was.equals(name)) {
                        wrong(tp + " is given to " + name + " while " + was + " has it");
                    }
                }
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> ps) {
            if (!ps.isEmpty()) {
                try {
                    c.commitSync(Duration.ofSeconds(20));
                } catch (Exception e) {
                    wrong(name + " commits what it gives back: " + e);
                }
            }
            onPartitionsLost(ps);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> ps) {
            synchronized (owners) {
                for (TopicPartition tp : ps) {
                    owners.remove(tp, name);
                }
            }
        }

        @Override
        public void run() {
            try {
                c = new KafkaConsumer<>(p);
                c.subscribe(List.of(TOPIC), this);
                while (!ending) {
                    ConsumerRecords<String, String> records = c.poll(Duration.ofMillis(100));
                    for (ConsumerRecord<String, String> r : records) {
                        read.merge(r.value(), 1, Integer::sum);
                    }
                    if (!records.isEmpty()) {
                        c.commitAsync();
                    }
                    has = c.assignment().size();
                }
                c.close(Duration.ofSeconds(20));
                onPartitionsLost(new HashSet<>(mine())); // a static member that closes keeps them in the group
            } catch (Throwable e) {
                wrong(name + ": " + e);
            }
        }

        Set<TopicPartition> mine() {
            synchronized (owners) {
                Set<TopicPartition> mine = new HashSet<>();
                owners.forEach((tp, n) -> {
                    if (n.equals(name)) {
                        mine.add(tp);
                    }
                });
                return mine;
            }
        }
    }

    interface Check {
        boolean holds() throws Exception;
    }

    void await(String what, Check check) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!check.holds()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("waited for " + what + " for a minute; owners " + owners + ", " + read.size() + " of " + sent + " read");
            }
            Thread.sleep(50);
        }
    }

    void run() throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        try (Admin admin = Admin.create(p); KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
            admin.createTopics(List.of(new NewTopic(TOPIC, PARTITIONS, (short) 1))).all().get(30, TimeUnit.SECONDS);
            List<Member> all = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                all.add(start(false, i));
            }
            step(admin, producer, all, "Classic");
            for (boolean next : new boolean[] {true, false}) {
                for (int i = 0; i < 3; i++) {
                    Member old = all.get(i);
                    old.ending = true;
                    old.join(40000);
                    all.set(i, start(next, i));
                    step(admin, producer, all, next || i < 2 ? "Consumer" : "Classic");
                }
            }
            for (Member m : all) {
                m.ending = true;
            }
            for (Member m : all) {
                m.join(40000);
            }
        }
        int twice = 0;
        for (int n : read.values()) {
            twice += n - 1;
        }
        System.out.println("rolled: " + sent + " records, " + twice + " read again");
    }

    Member start(boolean next, int place) {
        Member m = new Member(next, place);
        m.start();
        return m;
    }

    /** Sends records, waits until they are read and everybody has its part, and looks at the group. */
    void step(Admin admin, KafkaProducer<String, String> producer, List<Member> all, String type) throws Exception {
        List<Future<?>> acks = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            acks.add(producer.send(new ProducerRecord<>(TOPIC, i % PARTITIONS, null, "v" + sent++)));
        }
        for (Future<?> f : acks) {
            f.get(30, TimeUnit.SECONDS);
        }
        await("the records", () -> read.size() == sent);
        await("an even share", () -> all.stream().allMatch(m -> m.has == PARTITIONS / all.size()));
        ConsumerGroupDescription d = admin.describeConsumerGroups(List.of(GROUP)).all().get(20, TimeUnit.SECONDS).get(GROUP);
        if (!d.type().toString().equals(type) || d.members().size() != all.size()) {
            wrong("the group is " + d);
        }
        Map<TopicPartition, OffsetAndMetadata> at = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get(20, TimeUnit.SECONDS);
        at.forEach((tp, o) -> {
            Long before = committed.put(tp.partition(), o.offset());
            if (before != null && before > o.offset()) {
                wrong("the offset of " + tp + " went back from " + before + " to " + o.offset());
            }
        });
    }

    public static void main(String[] args) throws Exception {
        System.setOut(new java.io.PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, StandardCharsets.UTF_8));
        try {
            new Rolling(args[0], args[1].equals("static"), args[2]).run();
        } catch (Throwable e) {
            wrong(e.toString());
        }
        System.exit(0);
    }
}
