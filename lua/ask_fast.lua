-- Stands before the rest of ask: for one lock, which another owner holds, where whoever asks gets the
-- last place. To define the functions below would cost more than this. What fails here is left to the
-- functions below, and fails there in the same way.
local call, replies = redis.pcall, {}
if #KEYS == 2 and ARGV[4] ~= '0' and call('hlen', KEYS[1]) == 1 then
    local key, queue, owner, claim, how = KEYS[1], KEYS[2], ARGV[2], ARGV[4], ARGV[5]
    local field = call('hgetall', key)
    local holder = field[1] or owner
    if holder ~= owner and string.find(holder, ':', 1, true) and string.find(field[2], '^[1-9]%d*$') then -- 0: see recall.lua
        local ttl, time, kept, length = call('pttl', key), call('time'), call('pttl', queue), call('zcard', queue)
        local last, before = call('zrange', queue, -1, -1, 'withscores'), call('zcount', queue, 1, '+inf')
        local score = (math.floor((tonumber(last[2]) or 0) / 32768) + 1) * 32768 + claim * 4 + how
        local ours = 'rlock_channel' .. string.sub(queue, 12) .. ':' .. string.match(owner, '^(.*):')
        local heard = how == '1' and call('pubsub', 'numsub', ours) or {}
        if time[1] and tonumber(kept) and tonumber(length) and tonumber(before) and not last.err
            and call('zadd', queue, 'nx', string.format('%.0f', score), owner) == 1
            and (kept >= 30000 or call('pexpire', queue, 60000) == 1) then
            return {0, ttl, holder, time[1] * 1000000 + time[2], before, 1, length, heard[2] == 0 and 1 or 0}
        end
    end
end
