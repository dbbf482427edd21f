-- Stands before everything else of acquire: a free lock that one asks for. To define
-- the functions below would cost more than this.
if #KEYS == 1 and redis.call('pttl', KEYS[1]) == -2 then
    redis.call('hset', KEYS[1], ARGV[2], '1')
    if redis.pcall('pexpire', KEYS[1], ARGV[1]) == 1 then
        return 1
    end
    redis.call('del', KEYS[1]) -- and what follows fails in the same way
end
