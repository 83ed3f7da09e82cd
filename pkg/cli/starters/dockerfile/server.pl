use strict;
use warnings;
use IO::Socket::INET;
use POSIX 'WNOHANG';

my $listener = IO::Socket::INET->new(LocalPort => $ENV{PORT} || 8080, Listen => 128, ReuseAddr => 1)
    or die "failed to listen: $@\n";

# Who has come is answered, still, when the pod is to end.
my $ending = 0;
$SIG{TERM} = sub { $ending = 1; close $listener };

until ($ending) {
    my $client = $listener->accept or next;
    my $child = fork() // die "failed to fork: $!\n";
    unless ($child) {
        answer($client);
        exit 0;
    }
    close $client;
    1 while waitpid(-1, WNOHANG) > 0;
}
1 until wait() < 0;

sub answer {
    my ($client) = @_;
    my ($length, $name) = (0, '');
    while (defined(my $line = <$client>)) {
        last if $line =~ /^\r?$/;
        $length = $1 if $line =~ /^content-length:\s*(\d+)/i;
    }
    read($client, $name, $length) if $length;
    my $text = 'hello ' . ($name || 'world');
    print $client "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ", length $text,
        "\r\nConnection: close\r\n\r\n", $text;
}
