import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import net.sourceforge.argparse4j.inf.ArgumentParser;
import org.apache.kafka.tools.VerifiableConsumer;

/**
 * Several kafka-verifiable-consumers in one JVM, until its input ends. Each argument is the name of one, and the
 * arguments of the tool, with spaces between them; each line of its output is what a tool printed after its name.
 * The last argument is the broker's address.
 */
public class Verifiables {
    /** Standard output for one consumer, which keeps the stream that is set while it is made. */
    static class Named extends ByteArrayOutputStream {
        final String name;
        final PrintStream to;

        Named(String name, PrintStream to) {
            this.name = name;
            this.to = to;
        }

        @Override
        public synchronized void flush() {
            String all = toString(StandardCharsets.UTF_8);
            int end = all.lastIndexOf('\n') + 1;
            reset();
            writeBytes(all.substring(end).getBytes(StandardCharsets.UTF_8));
            synchronized (to) {
                all.substring(0, end).lines().forEach(line -> to.println(name + " " + line));
                to.flush();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        var parser = VerifiableConsumer.class.getDeclaredMethod("argParser");
        parser.setAccessible(true);
        List<VerifiableConsumer> consumers = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < args.length - 1; i++) {
            String[] words = (args[i] + " --bootstrap-server " + args[args.length - 1]).split(" ");
            System.setOut(new PrintStream(new Named(words[0], out), true, StandardCharsets.UTF_8));
            VerifiableConsumer c = VerifiableConsumer.createFromArgs((ArgumentParser) parser.invoke(null), List.of(words).subList(1, words.length).toArray(new String[0]));
            consumers.add(c);
            threads.add(new Thread(c::run));
        }
        System.setOut(System.err);
        for (Thread t : threads) {
            t.start();
        }
        while (System.in.read() >= 0) {
            // until its end
        }
        for (VerifiableConsumer c : consumers) {
            c.close();
        }
        for (Thread t : threads) {
            t.join();
        }
        System.exit(0);
    }
}
